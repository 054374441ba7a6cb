"""What a run says, for every reader.

text    a terminal
junit   CI systems that show tests
sarif   code review that shows results of analysis
page    people: one HTML file that loads nothing
plots   the pictures of the page
words   names and spelling that all of them share
"""

from lunette.conform.report import inset as inset
from lunette.conform.report import page as page
from lunette.conform.report import text as text
