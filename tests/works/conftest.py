from support.boxes import become_subreaper, no_box_outlives_its_test, tmp_path  # noqa: F401

become_subreaper()
