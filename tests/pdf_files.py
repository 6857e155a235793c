"""Small PDF documents, made by hand."""


def make_pdf(*pages: str, title: str = "", author: str = "") -> bytes:
    """A document with one line of text per line, in ASCII. A page without text is empty, as a scanned one would be."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * place} 0 R" for place in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for place, text in enumerate(pages):
        shown = "".join(
            f"BT /F1 12 Tf 50 {750 - 20 * number} Td ({line}) Tj ET\n" for number, line in enumerate(text.splitlines())
        )
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * place} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(shown)} >>\nstream\n{shown}endstream")
    objects.append(f"<< /Title ({title}) /Author ({author}) /CreationDate (D:20260601080000Z) >>")
    made, places = "%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n{trailer}\nstartxref\n{len(made)}\n%%EOF\n"
    return (made + end).encode()
