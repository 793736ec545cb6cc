package core_test

import (
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// A token is valid at a replica that has not heard yet of its account, which another one made.
func TestATokenOfAnotherReplica(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, bundle)
	deaf := func(op memlog.Op) memlog.Fault { return memlog.Fault{LoseAnswer: op == memlog.Wait} }
	other, err := tryStartWith(t.Context(), store.Open(deaf), planetest.Options{KeyFile: p.keyFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.close)
	p.account(t, "robot")
	if who := other.known(t, p.token(t, "robot", "")); who != "system:serviceaccount:default:robot" {
		t.Errorf("it is of %q", who)
	}
}
