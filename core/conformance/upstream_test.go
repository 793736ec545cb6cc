package conformance_test

import (
	"testing"

	_ "github.com/stretchr/testify/require" // upstream's tests need it
	_ "stele.dev/stele/core/conformance/testdata/fixtures"
)

func TestUpstreamsCases(t *testing.T) {}
