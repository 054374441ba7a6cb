"""What a run says, for every reader.

text    a terminal
junit   CI systems that show tests
sarif   code review that shows results of analysis
page    people: one HTML file that loads nothing
plots   the pictures of the page
words   names and spelling that all of them share
"""
