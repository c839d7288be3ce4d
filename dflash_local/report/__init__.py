"""A benchmark's record as one HTML file that can be mailed: `page.report_page(record)`."""
