// Command gate runs the module's tests for .ci/run and the Makefile, from the module's root.
//
//	gate tests [FOLDER] run each test once, as .ci/tests.txt says, and print how long they take; only below a folder
//	gate quick BASE     vet and test what changed since a revision, and the direct importers of it
//	gate flakes BASE    run the tests that changed since a revision 20 times on a busy machine
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

const list = ".ci/tests.txt"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "tests":
		return runTests("")
	case len(args) == 2 && args[0] == "tests":
		return runTests(args[1])
	case len(args) == 2 && args[0] == "quick":
		return runQuick(args[1])
	case len(args) == 2 && args[0] == "flakes":
		return runFlakes(args[1])
	}
	return errors.New("usage: gate tests [FOLDER] | gate quick BASE | gate flakes BASE")
}

// runTests runs all tests below a folder. It fails if one fails or does not run, and repeats failures of those that wait for
// the time of a clock.
func runTests(folder string) error {
	packages, err := listPackages("./...")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	rules, err := parseRules(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	if err := checkRules(packages, rules); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	packages = slices.DeleteFunc(packages, func(p goPackage) bool { return !strings.HasPrefix(p.folder()+"/", "./"+folder) })
	runs, err := planRuns(packages, rules)
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	all := newResults(os.Stdout)
	var total usage
	for _, r := range runs {
		fmt.Printf("\n== go test: %s\n", r)
		used, err := goTest(all, r.arguments()...)
		if err != nil {
			return err
		}
		fmt.Printf("== %s\n", used)
		total = total.add(used)
	}
	problems := all.judge(packages, rules, func(t test, at string) (bool, string) { return repeat(runs, t, at) })
	all.report(os.Stdout, 20)
	fmt.Printf("\nall tests: %s\n", total)
	return errors.Join(problems...)
}
