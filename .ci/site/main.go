// Command site makes the site of the documentation: static files, which need no server and load nothing from elsewhere.
//
//	site -out DIR                the pages of the working tree
//	site -out DIR -files URL     with links to files of the repository, such as https://git.example.com/stele/blob/v1.2.3
//
// It is a module of its own, so that go.mod of the program does not name what it needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := flag.String("out", "", "folder that the site is written to; what is in it is removed")
	files := flag.String("files", "", "address of the repository's files at one commit (default: pages of the site show the files that pages link to)")
	program := flag.String("program", "", "the program whose commands are described (default: it is built)")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(ctx, *out, *program, *files); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, program, files string) error {
	root, err := output(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root = strings.TrimSpace(root)
	if program == "" {
		temporary, err := os.MkdirTemp("", "stele-site-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(temporary) }()
		program = temporary + "/stele"
		if _, err := output(ctx, "go", "-C", root, "build", "-o", program, "./cmd/stele"); err != nil {
			return err
		}
	}
	s, err := load(ctx, root, program, strings.TrimSuffix(files, "/"))
	if err != nil {
		return err
	}
	if err := s.write(out); err != nil {
		return err
	}
	fmt.Printf("%d pages in %s\n", len(s.pages), out)
	return nil
}

// output runs a program and returns what it prints.
func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}
