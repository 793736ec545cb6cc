// Package workers has CUE evaluate values in processes of their own.
//
// CUE can be neither interrupted nor told how much memory to use, and there are values on
// which it overflows the stack, which no Go program survives. What the form of a schema
// cannot say is therefore evaluated by workers:
//
//	pool := workers.New(workers.Options{Command: ...}) // starts nothing yet
//	program, err := program.New(node, program.EvaluateWith(pool))
//	defer pool.Close()                                 // ends all
//
// and the command of a worker calls [Work]. A worker is asked one question at a time, by
// its standard input and output: a length of four bytes, the most significant first, and as
// many bytes of JSON. It begins with an answer to question 0, and answers each in turn.
//
// A value for which a worker takes too long, crashes, or answers what is no answer, is
// invalid, and the worker is killed. So is the next one that is equal, for a while, and
// after some of them every value for that expression: a client must not keep all workers
// busy with values that end them.
//
// Workers die with the process that started them: on Linux by the kernel's hand, else when
// their input ends; and when a question takes far longer than its deadline, by their own.
package workers
