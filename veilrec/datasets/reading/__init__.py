"""Reading: files of any layout become a log, with an error that names the line where they do not."""
