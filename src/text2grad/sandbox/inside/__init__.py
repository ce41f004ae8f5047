"""What runs inside the sandbox: started as `python FOLDER`, on the standard library and without the rest of text2grad.

The host imports of these only what tells a check from other code (`asserts`); its tests import more.
"""
