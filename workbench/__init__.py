"""The doors to the engine: the Streamlit workbench, the command line and the jobs that both run."""
