package flash

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/shaders"
)

// TestVerdictsKeepTheirKeys: the key of a verdict names the words that the driver gets, as it did when the hash was made of them each time: verdicts
// on users' disks stay theirs.
func TestVerdictsKeepTheirKeys(t *testing.T) {
	d := testDevice(t)
	const module = "scalar_forward.f16"
	for _, functions := range []score.Code{{}, {Score: score.Softcap(30)}} {
		c := kernel.Constants{"SCORE_FUNCTIONS": 0, "MASK_FUNCTIONS": 0}
		words, err := d.env.Module(module)
		require.NoError(t, err)
		if !functions.Score.Identity() {
			c["SCORE_FUNCTIONS"] = 1
			info, err := shaders.Describe(module)
			require.NoError(t, err)
			spliced := functions
			spliced.FirstBinding = info.Interface.BindingCount()
			words, err = score.Splice(words, spliced)
			require.NoError(t, err)
		}
		sum := sha256.Sum256(spirv.Bytes(words))
		key, err := d.env.ProofKey([]kernel.Compiled{{Module: module, Constants: c, Functions: functions}})
		require.NoError(t, err)
		specialized := ""
		if d.env.Ctx.Specializes() {
			specialized = fmt.Sprintf(" specialized %d", specialize.Revision)
		}
		require.Equal(t, fmt.Sprintf("check%s %s %.16s%v", specialized, module, hex.EncodeToString(sum[:]), c), key)
	}
}
