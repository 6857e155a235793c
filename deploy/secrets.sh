#!/bin/sh
# Creates the secrets of compose.yaml, one file each, in secrets/ next to this script. Existing files are not changed.
set -eu
cd "$(dirname "$0")"

# Only you can enter the folder. The files are readable by all, because containers run as other users.
umask 022
mkdir -p secrets
chmod 700 secrets

random() {
    od -An -v -tx1 -N "$1" /dev/urandom | tr -d ' \n'
}

# keep NAME TEXT: write a secret unless it exists.
keep() {
    if [ -s "secrets/$1" ]; then
        echo "kept  secrets/$1"
    else
        # printf is a shell builtin, so no list of processes shows the secret.
        printf '%s\n' "$2" >"secrets/$1"
        echo "made  secrets/$1"
    fi
}

keep postgres_password "$(random 24)"
keep floodmark.env "DATABASE_URL=postgresql://floodmark:$(cat secrets/postgres_password)@postgres/floodmark
REDIS_URL=redis://valkey:6379/0
FLOODMARK_SECRET_KEY=$(random 32)"
keep grafana_password "$(random 12)"
keep slack_url "http://127.0.0.1:9/write-the-webhook-of-your-slack-channel-into-secrets-slack_url"
keep pagerduty_routing_key "write-the-integration-key-of-your-pagerduty-service-into-secrets-pagerduty_routing_key"

echo "Keep a copy of FLOODMARK_SECRET_KEY (in secrets/floodmark.env) away from backups of the database:"
echo "without it the stored sessions of Telegram accounts cannot be decrypted."
