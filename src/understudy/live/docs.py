def docs_page(document):
    return "<p>docs"
