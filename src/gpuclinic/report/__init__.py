"""How an answer looks: JSON, terminal, Markdown, one line. No decisions here."""
