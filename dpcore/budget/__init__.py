"""A budget for any task: charge an account before a function runs, keep what it returns, and return that to whoever asks again."""

from dpcore.budget.budget import Budget
from dpcore.budget.spending import Spending
from dpcore.mechanisms.declared import DpSgd, Gaussian, Laplace

__all__ = ["Budget", "DpSgd", "Gaussian", "Laplace", "Spending"]
