"""Tells people of trouble, for installations without Alertmanager: Slack, a webhook, e-mail.

The leader reads from the database what is wrong, decides what is worth a message (`deciding`, pure), puts it into words
(`wording`), writes the message down, and then sends it over every channel (`notifier`).
"""
