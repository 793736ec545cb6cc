// Package calls runs the commands of test scripts in processes that stay, because a program such as kubectl needs more time to
// start than for most of its commands. A script finds a small program, the caller, in its PATH. The caller passes its
// arguments, environment, folder and files to a [Pool] of the test. The pool passes them on to a worker: a process of the real
// program that runs one command after another. What a command does to its process ends the worker, and reaches the
// caller: an exit, a signal, a panic.
package calls

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
)

// socketVariable is the environment variable that names the socket of a script's pool.
const socketVariable = "STELE_TEST_CALLS"

// workerVariable is the environment variable that makes a program a worker.
const workerVariable = "STELE_TEST_WORKER"

// call is a command that a worker shall run. The three standard files of its process come with it.
type call struct {
	Args []string
	Env  []string
	Dir  string
}

// answer says what became of a call. The caller then ends the same way.
type answer struct {
	Code   int            // the exit code
	Signal syscall.Signal // the signal that ended the process, if not zero
	Exec   string         // the program that the caller must become, because no worker runs such a command
}

// sendCall sends a call and the files 0, 1 and 2 of a process. The files come with the length of the call.
func sendCall(conn *net.UnixConn, c call, files []int) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	length := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	if _, _, err := conn.WriteMsgUnix(length, syscall.UnixRights(files...), nil); err != nil {
		return err
	}
	_, err = conn.Write(text)
	return err
}

// receiveCall receives a call and the files that belong to it.
func receiveCall(conn *net.UnixConn) (c call, files []int, err error) {
	var length [4]byte
	control := make([]byte, syscall.CmsgSpace(3*4))
	n, controlled, _, _, err := conn.ReadMsgUnix(length[:], control)
	if err != nil {
		return call{}, nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(control[:controlled])
	if err != nil || n != len(length) || len(messages) != 1 {
		return call{}, nil, errors.Join(err, fmt.Errorf("%d bytes with %d messages are no call", n, len(messages)))
	}
	if files, err = syscall.ParseUnixRights(&messages[0]); err != nil {
		return call{}, nil, err
	}
	text := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return call{}, files, err
	}
	err = json.Unmarshal(text, &c)
	return c, files, err
}

// Call passes the command of this process to the pool of the script. It returns if there is no pool.
func Call() error {
	conn, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	unix := conn.(*net.UnixConn)
	if err := sendCall(unix, call{os.Args, os.Environ(), dir}, []int{0, 1, 2}); err != nil {
		return err
	}
	forwardSignals(unix)
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return err
	}
	switch {
	case a.Exec != "":
		return syscall.Exec(a.Exec, append([]string{a.Exec}, os.Args[1:]...), os.Environ())
	case a.Signal == syscall.SIGPIPE: // Go ignores it unless it comes of a write
		os.Exit(128 + int(a.Signal)) // as shells say it
	case a.Signal != 0:
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), a.Signal)
		select {}
	}
	os.Exit(a.Code)
	return nil
}

// forwardSignals writes the signals that end a program to a connection, as numbers.
func forwardSignals(conn *net.UnixConn) {
	received := make(chan os.Signal, 4)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range received {
			_ = json.NewEncoder(conn).Encode(s)
		}
	}()
}
