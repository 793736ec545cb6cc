package main

import (
	"context"
	"errors"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/eventlog/etcdlog"
)

// checkDatabaseApart is [etcdlog.CheckDatabase] in a process of its own: a database is mapped
// into memory, and following a damaged page of it can be the end of a process.
func checkDatabaseApart(ctx context.Context, file string) error {
	self, err := evaluateApart() // this program, also after another version took its place
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self.Path, "check-database", file)
	cmd.Args[0] = "stele"
	cmd.Env = []string{"GOTRACEBACK=none"}
	said := &bounded{left: 64 << 10, drop: true}
	cmd.Stderr = said
	err = cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || ctx.Err() != nil {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said.text.String()), "\n")
	return errors.New(strings.TrimPrefix(line, "stele: "))
}

// checkDatabaseCommand is the other end of checkDatabaseApart.
func checkDatabaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "check-database FILE",
		Short:  "Check the pages of etcd's database, for a server",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return etcdlog.CheckDatabase(args[0])
		},
	}
}
