"""MBPP's lists of assert statements, made into one `check(candidate)` as HumanEval has it."""

import ast

from rolloutgym.server.environments.code.tasks import HiddenTests


def mbpp_tests(assertions: list[str], *, code: str, setup: str) -> HiddenTests:
    """Hidden tests that assert the same of `candidate`. `ValueError` where no tested function can be told."""
    trees = [ast.parse(assertion) for assertion in assertions]
    defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
    called = [
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in defined
    ]
    if not called:
        raise ValueError("no assertion calls a function of the code")
    entry_point = max(called, key=called.count)
    body = "\n".join(ast.unparse(_Rename(entry_point).visit(tree)) for tree in trees)
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    source = f"{setup}\n\ndef check(candidate):\n{indented}\n"
    return HiddenTests(entry_point=entry_point, source=source.lstrip(), reference=code, preamble=setup)


class _Rename(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.copy_location(ast.Name("candidate", node.ctx), node) if node.id == self._name else node
