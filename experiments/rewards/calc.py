"""A reward function as verl takes it: right counts 1, and a right answer after both tool calls a little more."""

import re


def compute_score(data_source, solution_str, ground_truth, extra_info=None, bonus=0.1):
    numbers = re.findall(r"-?\d+", solution_str)
    is_right = bool(numbers) and numbers[-1] == str(ground_truth)
    calls = solution_str.count("<tool_call>")
    return {
        "score": float(is_right) + (bonus if is_right and calls == 2 else 0.0),
        "acc": is_right,
        "calls": calls,
    }
