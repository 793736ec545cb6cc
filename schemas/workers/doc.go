// Package workers evaluates CUE in separate processes.
//
// CUE can be neither interrupted nor limited in memory, and it overflows the stack on some values, which
// ends a Go program. So fallbacks are evaluated by workers:
//
//	pool := workers.New(workers.Options{Command: ...}) // starts no worker yet
//	program, err := program.New(node, program.EvaluateWith(pool))
//	defer pool.Close()                                 // ends all workers
//
// The command of a worker calls [Work]. A worker gets one question at a time on its standard input and
// answers on its standard output. A message is its length as four bytes in big-endian order, followed by
// JSON. A worker starts with an answer to question 0, to report that it is ready.
//
// If a worker takes too long, crashes or sends an invalid answer, the value is invalid, and the worker is
// killed. For a while, equal values are then rejected without an evaluation; after several such values,
// all values for the same expression. So a client cannot keep all workers busy with such values.
//
// Workers end with the process that started them: on Linux the kernel kills them, elsewhere they end when
// their input ends. A worker also ends itself if a question takes far longer than its deadline.
package workers
