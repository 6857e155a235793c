"""Notifies people of problems by Slack, Discord, Telegram, webhook or e-mail, for installations without Alertmanager.

The leader reads problems from the database, decides which are worth a message (`decisions`, pure), builds the message
(`messages`), stores it, and then sends it over every channel (`notifier`).
"""
