"""Makes an image smaller: POST it, ?width= and ?height= bound it (its proportions stay), ?format= is jpeg, png or webp."""

import base64
import io

from PIL import Image, ImageOps, UnidentifiedImageError

Image.MAX_IMAGE_PIXELS = 50_000_000
_FORMATS = {"jpeg": "JPEG", "png": "PNG", "webp": "WEBP"}
_MOST = 4096


def handle(event):
    if not isinstance(event, dict) or not isinstance(event.get("body"), str):
        return _failed(400, "send the image itself as the body, with its type: -H 'Content-Type: image/png'")
    data = base64.b64decode(event["body"]) if event["isBase64Encoded"] else event["body"].encode()
    query = event["_query"]
    try:
        box = (_side(query, "width"), _side(query, "height"))
        image = Image.open(io.BytesIO(data))
        form = _form(query.get("format", image.format))
        return _answer(_resized(image, box, form), form)
    except UnidentifiedImageError:
        return _failed(415, "the body is no image that can be read")
    except Image.DecompressionBombError:
        return _failed(413, f"the image has more than {2 * Image.MAX_IMAGE_PIXELS:,} pixels")
    except (ValueError, OSError) as error:
        return _failed(400, str(error))


def _resized(image, box, form):
    image = ImageOps.exif_transpose(image)
    image.thumbnail(box)
    if form == "JPEG" and image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    out = io.BytesIO()
    image.save(out, form)
    return out.getvalue()


def _side(query, name):
    text = query.get(name, str(_MOST))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= _MOST:
        raise ValueError(f"{name} must be from 1 to {_MOST}, not {text!r}")
    return int(text)


def _form(name):
    form = _FORMATS.get(str(name).lower())
    if form is None:
        raise ValueError(f"format must be one of {', '.join(_FORMATS)}, not {name!r}")
    return form


def _answer(data, form):
    return {
        "statusCode": 200,
        "headers": {"Content-Type": f"image/{form.lower()}"},
        "body": base64.b64encode(data).decode(),
        "isBase64Encoded": True,
    }


def _failed(status, sentence):
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": {"error": sentence}}
