# Short names for the tasks of dev.py, which installs what each of them needs.
.PHONY: demo test lint types format docs wheel setup
demo test lint types format docs wheel setup:
	@python3 dev.py $@
