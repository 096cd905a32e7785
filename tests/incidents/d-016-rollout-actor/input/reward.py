import os, ray, torch

@ray.remote(num_cpus=1)
class RewardTask:
    def __init__(self, path):
        print(f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r} torch.cuda.device_count()={torch.cuda.device_count()}")
        self.path = path
