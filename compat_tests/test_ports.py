from compat_tests.oracle.ports import free_ports

SERVERS = 200


def test_no_server_is_given_a_port_that_another_one_was_given_before_it_listened():
    given = [port for _ in range(SERVERS) for port in free_ports(5)]

    assert len(set(given)) == len(given)
