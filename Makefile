# Short names for the tasks of dev.py, which sets up what each of them needs.
.PHONY: demo test lint types format docs setup
demo test lint types format docs setup:
	@python3 dev.py $@
