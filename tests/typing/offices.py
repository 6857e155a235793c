"""Both offices have all the verbs: checked by the type checker."""

from floodmark.office.local import LocalOffice
from floodmark.office.port import Office
from floodmark.office.remote import RemoteOffice


def a_local_office_is_an_office(local: LocalOffice) -> Office:
    return local


def a_remote_office_is_an_office(remote: RemoteOffice) -> Office:
    return remote
