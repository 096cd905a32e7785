#!/bin/bash
#SBATCH -p a6000
#SBATCH --gres=gpu:2
#SBATCH -J segm-abl
set -x
module load cuda/11.8
export OMP_NUM_THREADS=8
export MASTER_PORT=29611
# copied from the old 4-card node
python -u main.py --cfg cfgs/abl_4gpu.yaml --world-size 4 --dist-url tcp://127.0.0.1:$MASTER_PORT "$@"
