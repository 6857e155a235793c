"""What every source, sink and notification channel gets, whether it is built in or comes with another package."""
