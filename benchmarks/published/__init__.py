"""HumanEval and MBPP from their authors' files, for `real_files.py`."""
