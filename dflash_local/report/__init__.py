"""A benchmark's record as one self-contained HTML file: `page.report_page(record)`."""
