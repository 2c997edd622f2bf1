"""The pages; each is a script that Streamlit runs, and a module that tests import."""
