// Package chaos has the parts of tests that break a control plane of several replicas: clients that record what they
// are told, proxies that lose connections, and checks that compare the records with each other and with the log.
//
//	h := chaos.NewHistory()
//	client := chaos.NewClient(h, "replica-0", url, transport)
//	client.Do(ctx, chaos.Request{Verb: chaos.Update, Name: "a", Value: "7"})
//	...
//	log, err := chaos.ReadLog(ctx, eventLog, "default")
//	err = chaos.Check(h.Operations(), log)
//
// The objects are config maps of one namespace. Each write stores a value that no other write stores, so that a read
// names the write that it saw.
//
// [Check] knows three kinds of reads and writes. Reads without a resourceVersion and all writes must be linearizable:
// porcupine checks each object, and the revisions order all objects. A read at resourceVersion=0 may be old, but one replica never
// goes back, and no read is from the future. An answer that says that nothing was written must be true. An operation without an
// answer stays open for ever; the log says whether it took effect.
package chaos
