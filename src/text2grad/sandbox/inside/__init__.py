"""What runs inside the sandbox: started as `python FOLDER`, on the standard library and without the rest of text2grad.

The host never imports these modules except for the wire format and the asserts' reader, which its tests check.
"""
