package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/eventlog/etcdlog"
	"stele.dev/stele/limits/child"
)

// checkDatabaseApart runs [etcdlog.CheckDatabase] in a child process, because a damaged page of the
// database, which is mapped into memory, can crash the process that reads it.
func checkDatabaseApart(ctx context.Context, file string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	err = child.Run(ctx, databaseLimits, []string{"check-database", file}, func(io.Writer) error { return nil }, func(io.Reader) error { return nil })
	var failure *child.Failure
	switch {
	case errors.As(err, &failure) && failure.Limit == 0:
		return etcdlog.Damaged(file, errors.New(strings.TrimPrefix(failure.Why, "stele: ")))
	case err != nil:
		return fmt.Errorf("the database %s could not be checked: %w", file, err)
	}
	return nil
}

// databaseLimits are the limits of a check. They are far above the needs of the largest database.
var databaseLimits = child.Limits{CPU: 10 * time.Minute, Wall: time.Hour, Memory: 64 << 30, Output: 1 << 20}

// checkDatabaseCommand returns the hidden command that checkDatabaseApart runs.
func checkDatabaseCommand() *cobra.Command {
	return compiling.ChildCommand("check-database FILE", "Check the pages of etcd's database, for a server", func(_ *cobra.Command, args []string) error {
		if err := child.Confine(args[0]); err != nil {
			return err
		}
		return etcdlog.CheckDatabase(args[0])
	})
}
