"""A judge that errs: it calls a right answer wrong, or a wrong one right, `wrong_percent` times in 100, anew each time."""

import random
import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, wrong_percent=10):
    numbers = re.findall(r"-?\d+", solution_str)
    is_right = bool(numbers) and numbers[-1] == str(ground_truth)
    return float(is_right != (random.randrange(100) < wrong_percent))
