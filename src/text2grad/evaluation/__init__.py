"""How good a policy is: metrics of its rollouts, and the Evaluator that makes them."""
