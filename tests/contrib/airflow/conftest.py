"""The tests of ``inside`` need Airflow: ``test_in_airflow.py`` runs them where it is."""

collect_ignore = ["inside"]
