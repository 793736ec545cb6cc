package main

import (
	"bytes"
	_ "embed"
	"testing"

	"stele.dev/stele/plugins/sdk/authorizertest"
)

func TestPlugin(t *testing.T) {
	options := authorizertest.Options{
		Table: authorizertest.Table(t, "decisions.yaml"),
		BadConfigs: []string{
			`{"timezone": "Mars/Olympus", "from": 9, "to": 17}`,
			`{"timezone": "Europe/Berlin", "from": 17, "to": 9}`,
			`{"timezone": "Europe/Berlin", "from": 9, "to": 25}`,
			`{"timezone": "Europe/Berlin", "from": 9, "to": 17, "ticket": "("}`,
			`{"timezone": "Europe/Berlin", "from": "nine", "to": 17}`,
		},
	}
	t.Run("in process", func(t *testing.T) { authorizertest.Run(t, authorizertest.InProcess(plugin), options) })
	t.Run("as a program", func(t *testing.T) {
		t.Parallel()
		authorizertest.Run(t, authorizertest.Program(authorizertest.Build(t, ".")), options)
	})
	// The same protocol, without the SDK and go-plugin.
	t.Run("by hand", func(t *testing.T) {
		t.Parallel()
		authorizertest.Run(t, authorizertest.Program(authorizertest.Build(t, "raw")), options)
	})
}

//go:embed main.go
var program []byte

// The SDK makes an authorizer short.
func TestAllThatDecidesTakesFewerThanFortyLines(t *testing.T) {
	if n := bytes.Count(program, []byte("\n")); n >= 40 {
		t.Errorf("main.go has %d lines", n)
	}
}
