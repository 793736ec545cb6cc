package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// command is a command of the program, as its completion and its help describe it.
type command struct {
	words []string // without "stele"
	short string
	below []command
}

func (c command) name() string { return strings.Join(append([]string{"stele"}, c.words...), " ") }
func (c command) source() string {
	return "commands/" + strings.ReplaceAll(c.name(), " ", "-") + ".md"
}

// addCommands adds a page for each command of the program. It asks the program for them, as a shell does that completes "stele help ".
func (s *site) addCommands(ctx context.Context, program string) error {
	g, err := s.group("Reference")
	if err != nil {
		return err
	}
	root, err := readCommands(ctx, program, nil, "Run and inspect a control plane that speaks the Kubernetes API")
	if err != nil {
		return err
	}
	return s.addCommand(ctx, g, program, root, nil)
}

func readCommands(ctx context.Context, program string, words []string, short string) (command, error) {
	c := command{words: words, short: short}
	out, err := quietly(ctx, program, append(append([]string{"__complete", "help"}, words...), "")...)
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(out) {
		name, short, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found || name == "help" {
			continue
		}
		below, err := readCommands(ctx, program, append(words[:len(words):len(words)], name), short)
		if err != nil {
			return c, err
		}
		c.below = append(c.below, below)
	}
	return c, nil
}

func (s *site) addCommand(ctx context.Context, g *group, program string, c command, parent *command) error {
	help, err := quietly(ctx, program, append(c.words, "--help")...)
	if err != nil {
		return err
	}
	if strings.Contains(help, "--help-all") {
		if help, err = quietly(ctx, program, append(c.words, "--help-all")...); err != nil {
			return err
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n\n*Reference for users and operators: %s.*\n\n```help %s\n%s\n```\n",
		c.name(), c.short, strings.ReplaceAll(c.name(), " ", "-"), strings.TrimSpace(help))
	if parent != nil {
		fmt.Fprintf(&text, "\nPart of [%s](%s).\n", parent.name(), strings.TrimPrefix(parent.source(), "commands/"))
	}
	shown := g
	if parent != nil {
		shown = &group{title: g.title} // the navigation has the first page only
	}
	p, err := s.addText(shown, c.source(), strings.TrimSuffix(c.source(), ".md")+".html", []byte(text.String()))
	if err != nil {
		return err
	}
	if parent == nil {
		p.title = "Commands: stele"
	}
	for _, below := range c.below {
		if err := s.addCommand(ctx, g, program, below, &c); err != nil {
			return err
		}
	}
	return nil
}

// quietly runs the program without settings from the environment, and returns what it prints on standard output.
func quietly(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "STELE_") })
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}
