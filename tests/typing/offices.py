"""Both offices have all the verbs: checked by the type checker."""

from floodmark.operations.local import LocalOffice
from floodmark.operations.port import Office
from floodmark.operations.remote import RemoteOffice


def a_local_office_is_an_office(local: LocalOffice) -> Office:
    return local


def a_remote_office_is_an_office(remote: RemoteOffice) -> Office:
    return remote
