package conformance_test

import (
	_ "k8s.io/apiextensions-apiserver/pkg/cmd/server/testing"
)
