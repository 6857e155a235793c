"""The environment of Alembic: runs the migrations on the connection that `migrate.py` passes."""

from alembic import context

from floodmark.store.schema import load_metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=load_metadata(),
    # SQLite alters a table by copying it.
    render_as_batch=connection.dialect.name == "sqlite",
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
