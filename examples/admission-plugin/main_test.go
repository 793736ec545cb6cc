package main

import (
	"testing"

	"stele.dev/stele/plugins/sdk/admissiontest"
)

func TestPlugin(t *testing.T) {
	options := admissiontest.Options{
		Table: admissiontest.Table(t, "reviews.yaml"),
		BadConfigs: []string{
			`{"perReplica": 10, "teams": {}}`,
			`{"perReplica": 0, "teams": {"web": {"costCenter": "cc-100", "limit": 50}}}`,
			`{"perReplica": 10, "teams": {"web": {"costCenter": "cc-100"}}}`,
			`{"perReplica": 10, "teams": {"web": {"costCenter": "cc-100", "limit": "50"}}}`,
			`{"perReplica": 10, "teams": {"web": null}}`,
		},
	}
	t.Run("in process", func(t *testing.T) { admissiontest.Run(t, admissiontest.InProcess(plugin), options) })
	t.Run("as a program", func(t *testing.T) {
		t.Parallel()
		admissiontest.Run(t, admissiontest.Program(admissiontest.Build(t, ".")), options)
	})
}
