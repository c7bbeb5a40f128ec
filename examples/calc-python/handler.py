"""A calculator: GET shows a page with a form, POST computes what the form has and shows the page with the result."""

import html
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow

_OPERATIONS = {"+": Context.add, "-": Context.subtract, "*": Context.multiply, "/": Context.divide}
_CONTEXT = Context(prec=28, Emax=9_999, Emin=-9_999, traps=[DivisionByZero, InvalidOperation, Overflow])
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Calculator</title>
<style>body {{ font: 1.2rem sans-serif; margin: 3rem }} input, select, button {{ font: inherit; padding: .3rem }}</style></head>
<body><h1>Calculator</h1>
<form method="post">
<input name="a" value="{a}" inputmode="decimal" aria-label="first number" required>
<select name="op" aria-label="operation">{options}</select>
<input name="b" value="{b}" inputmode="decimal" aria-label="second number" required>
<button>=</button>
</form>
<p><output>{result}</output></p>
</body></html>
"""


def handle(event):
    if not isinstance(event, dict) or event["_method"] not in ("GET", "HEAD", "POST"):
        return {"statusCode": 405, "headers": {"Allow": "GET, HEAD, POST"}, "body": "use GET, or POST the form"}
    fields = {name: str(event.get(name, "")) for name in ("a", "op", "b")}
    if event["_method"] != "POST":
        return _page(fields, "")
    try:
        return _page(fields, str(compute(**fields)))
    except ValueError as error:
        return {**_page(fields, str(error)), "statusCode": 400}


def compute(a, op, b):
    """The operation's result. Raises ValueError with a sentence for whoever filled the form."""
    if op not in _OPERATIONS:
        raise ValueError(f"{op!r} is none of {' '.join(_OPERATIONS)}")
    try:
        context = _CONTEXT.copy()  # each call its own: calls run in threads
        result = _OPERATIONS[op](context, _number(a), _number(b)).normalize(context)
    except DivisionByZero:
        raise ValueError("nothing can be divided by zero") from None
    except DecimalException:
        raise ValueError("that has no result that can be shown") from None
    return f"{result:f}" if -30 < result.adjusted() < 30 else str(result)


def _number(text):
    try:
        number = Decimal(text.strip().replace(",", "."))
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number") from None
    if not number.is_finite():
        raise ValueError(f"{text!r} is no number")
    return number


def _page(fields, result):
    chosen = fields["op"] or "+"
    options = "".join(f"<option{' selected' if sign == chosen else ''}>{sign}</option>" for sign in _OPERATIONS)
    a, b = html.escape(fields["a"]), html.escape(fields["b"])
    return {
        "statusCode": 200,
        "headers": {"Content-Type": "text/html; charset=utf-8"},
        "body": _PAGE.format(a=a, b=b, options=options, result=html.escape(result)),
    }
