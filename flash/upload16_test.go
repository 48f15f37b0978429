package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
)

// TestUpload16: values of 16 bits arrive as they are, NaNs and subnormals too, between gaps that stay; other types are refused.
func TestUpload16(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F16, BF16} {
		whole, err := d.NewTensor(dtype, 2, 3, 5, 8)
		require.NoError(t, err)
		values := make([]uint16, whole.Elements())
		for i := range values {
			values[i] = uint16(i * 40503) // bit patterns of all kinds
		}
		require.NoError(t, Upload16(t.Context(), whole, values))
		got := make([]uint16, len(values))
		require.NoError(t, Download16(t.Context(), whole, got))
		require.Equal(t, values, got)

		// The first five elements of each row of a view: the three behind them keep what they had.
		view, err := whole.View(0, dtype, [4]int{2, 3, 5, 5}, [4]int{120, 40, 8, 1})
		require.NoError(t, err)
		part := make([]uint16, view.Elements())
		for i := range part {
			part[i] = uint16(7 + i)
		}
		require.NoError(t, Upload16(t.Context(), view, part))
		require.NoError(t, Download16(t.Context(), whole, got))
		for i, v := range got {
			want := values[i]
			if i%8 < 5 {
				want = part[i/8*5+i%8]
			}
			require.Equal(t, want, v, i)
		}
		back := make([]uint16, len(part))
		require.NoError(t, Download16(t.Context(), view, back))
		require.Equal(t, part, back)

		var wrong *ArgumentError
		require.ErrorAs(t, Upload16(t.Context(), whole, values[1:]), &wrong)
		require.Equal(t, "len(values)", wrong.Argument)
		require.NoError(t, whole.Close())
		require.ErrorIs(t, Upload16(t.Context(), whole, values), ErrClosed)
	}

	half, err := d.NewTensor(F16, 1, 1, 1, 2)
	require.NoError(t, err)
	require.NoError(t, Upload16(t.Context(), half, []float16.Float16{float16.Fromfloat32(1.5), float16.Fromfloat32(-2)}))
	floats := make([]float32, 2)
	require.NoError(t, half.Download(t.Context(), floats))
	require.Equal(t, []float32{1.5, -2}, floats)

	single, err := d.NewTensor(F32, 1, 1, 1, 2)
	require.NoError(t, err)
	require.ErrorContains(t, Upload16(t.Context(), single, make([]uint16, 2)), "must be of F16 or BF16")
	require.ErrorContains(t, Download16(t.Context(), single, make([]uint16, 2)), "must be of F16 or BF16")
	require.ErrorIs(t, Upload16(t.Context(), nil, []uint16{1}), ErrArgument)
}
