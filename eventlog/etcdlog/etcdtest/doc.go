// Package etcdtest runs etcd clusters for tests. Each member is a process of its own, which a test can kill, pause and cut
// off from its peers or from its clients.
//
// The members are the test binary itself, so its TestMain begins with [Member]:
//
//	func TestMain(m *testing.M) {
//		etcdtest.Member()
//		os.Exit(m.Run())
//	}
//
// All traffic passes proxies in the test's process: those of clients listen on TCP ports that the system chooses, and those
// between two members on Unix sockets, one for each direction. A connection that is cut stays open and carries nothing, like
// one whose packets are lost.
package etcdtest
